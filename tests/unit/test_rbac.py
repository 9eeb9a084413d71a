"""What the operator may do: nothing that it does not need."""

from kvcachepool import rbac

READ_ONLY = {"get", "list", "watch"}


def verbs(resource: str, *scopes: rbac.Scope) -> set[str]:
    """Verbs on a resource in these scopes."""
    return {
        verb
        for rule in rbac.RULES
        if resource in rule.resources and (not scopes or rule.scope in scopes)
        for verb in rule.verbs
    }


def test_no_wildcard() -> None:
    for rule in rbac.RULES:
        assert "*" not in (rule.group, *rule.resources, *rule.verbs)


def test_pools_are_read_and_only_their_status_is_written() -> None:
    assert verbs("kvcachepools") == READ_ONLY
    assert verbs("kvcachepools/status") == {"patch"}


def test_secrets_and_claims_cannot_be_listed() -> None:
    assert verbs("secrets", rbac.Scope.WATCHED) == verbs("persistentvolumeclaims") == {"get"}


def test_the_one_secret_that_is_written_is_the_installations_own() -> None:
    written = [
        r for r in rbac.RULES if set(r.resources) & {"secrets", "mutatingwebhookconfigurations"} and len(r.verbs) > 1
    ]
    assert [(rule.scope, rule.names, rule.verbs) for rule in written] == [
        (rbac.Scope.OWN_WEBHOOK, (rbac.WEBHOOK,), ("get", "patch")),
        (rbac.Scope.CLUSTER_WEBHOOK, (rbac.WEBHOOK,), ("get", "patch")),
    ]


def test_pods_are_never_written() -> None:
    assert verbs("pods") == READ_ONLY
    assert verbs("pods/log") == {"get"}


def test_children_can_be_applied_and_deleted() -> None:
    for resource in ("deployments", "services", "configmaps"):
        assert verbs(resource, rbac.Scope.WATCHED) == READ_ONLY | {"create", "patch", "delete"}, resource


def test_nothing_that_could_widen_its_own_rights() -> None:
    resources = {resource for rule in rbac.RULES for resource in rule.resources}
    forbidden = {"roles", "rolebindings", "clusterroles", "clusterrolebindings", "serviceaccounts", "pods/exec"}
    assert not resources & forbidden
    assert not {"impersonate", "bind", "escalate"} & {verb for rule in rbac.RULES for verb in rule.verbs}


def test_leases_outside_the_own_namespace_are_the_claim_alone() -> None:
    for rule in rbac.RULES:
        if "leases" in rule.resources and rule.scope is not rbac.Scope.OWN and "create" not in rule.verbs:
            assert rule.names == (rbac.CLAIM_LEASE,)


def test_a_name_never_limits_create_or_list() -> None:
    """RBAC ignores the rule then: the name is not known when the request is checked."""
    for rule in rbac.RULES:
        assert not (rule.names and {"create", "list", "watch"} & set(rule.verbs))


def test_every_rule_has_a_reason() -> None:
    assert all(rule.why for rule in rbac.RULES)
