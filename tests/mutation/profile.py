"""Hypothesis settings for mutation runs: few examples, the same in every run, and no shrinking."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "mutation",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=(HealthCheck.too_slow,),
    report_multiple_bugs=False,
)
settings.load_profile("mutation")
