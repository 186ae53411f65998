from tuner.leases import host_of, new_owner


def test_owners_differ_and_name_their_host() -> None:
    first, second = new_owner(), new_owner()
    assert first != second
    assert host_of(first) == host_of(second) != ""
    assert host_of("nightly") == ""
