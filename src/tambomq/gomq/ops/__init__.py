"""Operations on GOMQ keys, as calls. Their Lua scripts are in ``scripts/``."""
