"""`python -m deploy.reference`: writes every reference table. `make docs` runs it."""

from deploy.reference import write

write()
