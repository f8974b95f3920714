"""Operations on a whole log or on several processes: audit, backup, export, doctor, and queries of the past."""
