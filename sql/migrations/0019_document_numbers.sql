-- Before each submission we look whether the portal has judged a document of the same identity lately.

create index submitted_documents_by_number on submitted_documents (company_id, number);
