"""Operations on the whole log: backups, signed audit checkpoints, verification by a second fold, previews of
upgrades.
"""
