-- How often is each label right, where the source has a gold label, and at which confidence?
SELECT
  l.prompt_version,
  d.gold,
  count(*) AS documents,
  count_if(l.label = d.gold) AS right,
  round(avg(CASE WHEN l.label = d.gold THEN l.confidence END), 3) AS confidence_where_right,
  round(avg(CASE WHEN l.label <> d.gold THEN l.confidence END), 3) AS confidence_where_wrong
FROM labels l
JOIN documents d ON d.doc_id = l.doc_id
WHERE d.gold IS NOT NULL
GROUP BY l.prompt_version, d.gold
ORDER BY l.prompt_version, d.gold
