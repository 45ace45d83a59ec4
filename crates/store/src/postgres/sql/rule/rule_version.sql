-- Reads the version of the rules, which rises with every change of the rules.
SELECT version FROM campanile.rule_version
