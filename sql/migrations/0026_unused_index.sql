-- compatible: 0020
-- No statement reads this index any more: each state of a submission has an index of its own.

drop index submissions_waiting;
