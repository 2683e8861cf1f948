# case: a membership test in a list, by Python
# finds: list_contains,PyObject_RichCompare
# Asks a list whether it contains each number, instead of a set.
seen = []
for number in range(2500):
    key = number * 7919 % 2500
    if key not in seen:
        seen.append(key)
print(len(seen))
