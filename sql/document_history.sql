-- What has `labels` said about one document, and when did that change? Read from the change data feed, which goes back
-- tables.history_days: once version 0 is older than that, put the first version that is left in its place. Variable: asked_doc_id, as in DECLARE VARIABLE asked_doc_id STRING DEFAULT 'd0404'.
SELECT _commit_version AS version, _commit_timestamp AS at, _change_type AS change, prompt_version, label, confidence, run_id
FROM table_changes('labels', 0)
WHERE doc_id = asked_doc_id AND _change_type <> 'update_preimage'
ORDER BY version, change
