"""Operations on RSMQ queues, as calls and plans. Their Lua scripts are in ``scripts/``."""
