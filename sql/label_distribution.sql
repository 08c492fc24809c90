-- How many documents got each label, under each version of the prompt, and how sure was the model?
SELECT
  prompt_version,
  label,
  count(*) AS documents,
  round(100 * count(*) / sum(count(*)) OVER (PARTITION BY prompt_version), 1) AS percent,
  round(avg(confidence), 3) AS mean_confidence
FROM labels
GROUP BY prompt_version, label
ORDER BY prompt_version, documents DESC, label
