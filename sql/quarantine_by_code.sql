-- What could not be labelled, and why? One row a failure code, with one message and one document as an example.
SELECT
  prompt_version,
  failure_code,
  count(*) AS documents,
  min_by(failure_message, doc_hash) AS example_message,
  min_by(doc_id, doc_hash) AS example_doc_id,
  max(last_failed_at) AS last_failed_at
FROM quarantine
WHERE status = 'open'
GROUP BY prompt_version, failure_code
ORDER BY prompt_version, documents DESC, failure_code
