-- Who has ever said what about one document? Every accepted fact, the newest first: rules, engines, copies and failures.
-- Variable: asked_doc_id, as in DECLARE VARIABLE asked_doc_id STRING DEFAULT 'd0404'.
SELECT o.seq, s.kind, o.prompt_version, o.label, o.confidence, o.failure_code, o.copied_from, o.model_id, o.source_version,
  coalesce(o.labeled_at, o.last_failed_at) AS at
FROM outcomes o
JOIN shards s
  ON s.run_id = o.run_id AND s.shard_id = o.shard_id AND s.attempt = o.attempt
WHERE o.doc_id = asked_doc_id AND s.state IN ('accepted', 'committed')
ORDER BY o.seq DESC
