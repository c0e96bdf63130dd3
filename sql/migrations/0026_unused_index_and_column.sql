-- compatible: 0020
-- No statement reads this index any more: each state of a submission has an index of its own.

drop index submissions_waiting;

-- It is created again without its column `bytes`.
drop function if exists invoices_filtered(bigint, jsonb, bigint[]);
