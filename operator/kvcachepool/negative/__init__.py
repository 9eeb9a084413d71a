"""The negative test: engines that differ in one field of the cache schema must not read each other's blocks.

A writer computes a prompt, a reader that differs in one field is asked for the same prompt. With the digest in front of
every key it must reuse nothing and answer as it does without any cache. The same without the digest (`raw`) shows what
would have happened: a hit with a wrong answer, a request that hangs, an error.
"""
