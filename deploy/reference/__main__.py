"""`python -m deploy.reference`: writes every reference table; what `make docs` runs."""

from deploy.reference import write

write()
