"""The settings of the project: as few as Django needs."""

from __future__ import annotations

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
USE_TZ = True
# Django sets the clock of the whole process to it, and of the lines that workers print.
TIME_ZONE = "UTC"
