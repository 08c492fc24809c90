-- Which labels should a person look at first? Those whose first two labels were closest; a low label_mass means that the
-- model was hardly answering the question at all.
SELECT doc_id, label, round(confidence, 3) AS confidence, round(margin, 4) AS margin, round(label_mass, 4) AS label_mass
FROM labels
ORDER BY margin, doc_hash
LIMIT 20
