-- Rises with every change of the rules.
SELECT version FROM campanile.rule_version
