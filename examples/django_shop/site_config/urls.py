"""The addresses of the shop."""

from __future__ import annotations

from django.urls import path
from orders import views

urlpatterns = [path("orders/", views.order)]
