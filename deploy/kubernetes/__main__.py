"""`python -m deploy.kubernetes`: writes every manifest. `make docs` runs it."""

from deploy.kubernetes import write

write()
