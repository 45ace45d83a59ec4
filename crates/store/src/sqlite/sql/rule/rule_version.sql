-- Reads the version of the rules, which rises with every change of the rules.
SELECT version FROM rule_version
