"""Links of deploys."""

from django.urls import reverse

from queries.models.deploys.receipts import Deploy


def deploy_links(deploy: Deploy) -> dict[str, str]:
    """Return a deploy's addresses; one that has ended cannot be cancelled."""
    links = {"self": reverse("api:deploy", args=[deploy.uuid])}
    if deploy.ended_at is None:
        links["cancel"] = reverse("api:deploy-cancel", args=[deploy.uuid])
    return links
