"""The view that takes orders."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from orders.models import Order
from orders.tasks import confirm


@csrf_exempt  # An example without a login.
@require_POST
def order(request: HttpRequest) -> JsonResponse:
    """Write an order and enqueue its confirmation: both, or neither."""
    with transaction.atomic():
        made = Order.objects.create(article=request.POST["article"], email=request.POST["email"])
        if made.article == "unicorn":
            transaction.set_rollback(True)
            return JsonResponse({"error": "sold out"}, status=409)
        result = confirm.enqueue(made.pk)
    return JsonResponse({"order": made.pk, "task": result.id}, status=202)
