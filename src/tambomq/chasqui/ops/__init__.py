"""Operations on ChasquiMQ queues, as calls. Their Lua scripts are in ``scripts/``."""
