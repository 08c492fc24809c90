-- Which labels differ from those of an earlier version of the table? Put the version asked about in place of 1; the
-- versions there are: DESCRIBE HISTORY labels.
SELECT
  coalesce(now.doc_id, was.doc_id) AS doc_id,
  coalesce(now.prompt_version, was.prompt_version) AS prompt_version,
  was.label AS label_then,
  now.label AS label_now
FROM labels VERSION AS OF 1 was
FULL OUTER JOIN labels now
  ON now.doc_id = was.doc_id AND now.prompt_version = was.prompt_version
WHERE NOT (now.label <=> was.label)
ORDER BY doc_id, prompt_version
LIMIT 100
