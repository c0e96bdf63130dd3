create or replace function as_supplier(company companies) returns json
  stable language sql
  return (as_buyer(company)::jsonb || jsonb_build_object(
    'businessActivityDescription', company.business_activity_description,
    'msic', company.msic_code,
    'tourismTaxRegistrationNumber', number_or_na(company.tourism_tax_registration_number)))::json;
comment on function as_supplier is
  'The company as the supplier of a document, with the names of the exports. An absent number is '
  'NA.';
