"""A run that labels nonsense ends itself: too much in quarantine, or one label nearly everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelabel.errors import escaped
from lakelabel.sections import Stop

Answer = tuple[str | None, str | None]
"""A failure code and None, or None and a label."""

ANSWER = "CASE WHEN failure_code IS NULL THEN label END"
"""SQL: the label of a fact that is one; the best label of a failure is no answer, and would multiply the groups."""

IS_ANSWERED = "tier <> 'rule' AND copied_from IS NULL"
"""SQL: whether it was an engine that answered, and no rule or copy."""


@dataclass
class Sanity:
    """What a run's engine has answered so far, held to ``quality.stop``."""

    limits: Stop
    answers: Counter[Answer] = field(default_factory=Counter)

    def tell(self, answers: Mapping[Answer, int]) -> None:
        """Add what came since."""
        self.answers.update(answers)

    def complaint(self) -> str | None:
        """Why the run should stop, None while all is well or too little is known."""
        total = self.answers.total()
        if total < self.limits.after:
            return None
        codes: Counter[str] = Counter()
        labels: Counter[str] = Counter()
        for (code, label), n in self.answers.items():
            if code is not None:
                codes[code] += n
            elif label is not None:
                labels[label] += n
        if self.limits.quarantined is not None and codes.total() > self.limits.quarantined * total:
            most = ", ".join(f"{code} {n}" for code, n in codes.most_common(3))
            return f"{codes.total()} of {total} documents went to quarantine ({most}); quality.stop.quarantined is {self.limits.quarantined:g}"
        if self.limits.one_label is not None and labels:
            label, n = labels.most_common(1)[0]
            if n > self.limits.one_label * total:
                return f"{n} of {total} documents got the label {escaped(label)}; quality.stop.one_label is {self.limits.one_label:g}"
        return None
