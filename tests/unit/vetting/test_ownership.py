"""The owner of a session: the same table for every pair of identities."""

import pytest

from milepost.model.reasons import Reason
from milepost.vetting.access import ClientIdentity
from milepost.vetting.ownership import ClientIdPolicy, OtherUserPolicy, Takeover, not_owner, refuse_client_id, takeover

ANONYMOUS = ClientIdentity("truck-17")
ADA, MALLORY = ClientIdentity("truck-17", "ada"), ClientIdentity("truck-17", "mallory")
CERTIFIED, RENEWED = ClientIdentity("truck-17", None, "vehicle"), ClientIdentity("truck-17", None, "police")
RESUME, REPLACE, REFUSE = Takeover


@pytest.mark.parametrize("policy", OtherUserPolicy)
@pytest.mark.parametrize(
    ("holder", "newcomer", "expected"),
    [
        (ANONYMOUS, ANONYMOUS, RESUME),
        (ADA, ADA, RESUME),
        (CERTIFIED, RENEWED, RESUME),
        (ANONYMOUS, ADA, REPLACE),
        (ANONYMOUS, CERTIFIED, REPLACE),
        (ADA, CERTIFIED, REPLACE),
        (ADA, ANONYMOUS, REFUSE),
        (CERTIFIED, ANONYMOUS, REFUSE),
        (CERTIFIED, ADA, REFUSE),
    ],
)
def test_owners_resume_stronger_proofs_replace_and_weaker_ones_are_refused(
    holder: ClientIdentity, newcomer: ClientIdentity, expected: Takeover, policy: OtherUserPolicy
) -> None:
    assert takeover(holder, newcomer, policy) is expected


def test_the_policy_decides_between_users() -> None:
    assert takeover(ADA, MALLORY, OtherUserPolicy.REFUSE) is REFUSE
    assert takeover(ADA, MALLORY, OtherUserPolicy.NEW) is REPLACE


def test_an_empty_user_name_or_role_proves_nothing() -> None:
    assert takeover(ADA, ClientIdentity("truck-17", "", ""), OtherUserPolicy.NEW) is REFUSE


def test_a_refusal_names_the_client_and_not_the_owner() -> None:
    refused = not_owner(MALLORY)
    assert refused.reason is Reason.SESSION_OF_ANOTHER_OWNER
    assert "mallory" in refused.detail
    assert "ada" not in refused.detail
    assert "another client id" in str(refused)


@pytest.mark.parametrize(
    ("client_id", "user", "is_refused"),
    [("ada", "ada", False), ("ada/phone", "ada", False), ("ada-2", "ada", True), ("chief", "ada", True), ("chief", None, False)],
)
def test_a_user_may_be_bound_to_client_ids_with_its_name(client_id: str, user: str | None, is_refused: bool) -> None:
    assert refuse_client_id(client_id, user, ClientIdPolicy.ANY) is None
    assert (refuse_client_id(client_id, user, ClientIdPolicy.USER) is not None) is is_refused
