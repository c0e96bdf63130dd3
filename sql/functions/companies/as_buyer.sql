create or replace function as_buyer(company companies) returns json
  stable language sql
  return json_build_object(
    'contactNumber', company.phone,
    'name', company.name,
    'partyType', 'LOCAL_COMPANY',
    'registrationType', company.registration_type,
    'registrationNumber', number_or_na(company.registration_number),
    'sstRegistrationNumber', number_or_na(company.sst_registration_number),
    'tin', company.tin_code,
    'address', json_build_object(
      'addressLine0', company.address, 'cityName', company.city, 'country', company.country,
      'state', company.state, 'postalZone', company.zip_code),
    'email', company.email);
comment on function as_buyer is
  'The company as the buyer of a document, with the names of the exports. An absent registration '
  'number is NA.';
