// case: a record that is found by a scan of all, by node
// finds: scanned_list.js
// Finds each record by a scan of a list, instead of in a map.
"use strict";

const records = [];
for (let id = 0; id < 1500; id++) records.push({ id: (id * 7919) % 1500, name: `record ${id}` });

function findRecord(id) {
    for (let index = 0; index < records.length; index++) {
        if (records[index].id === id) return records[index];
    }
    return null;
}

let found = 0;
for (let round = 0; round < 40; round++) {
    for (let id = 0; id < 1500; id++) found += findRecord(id) ? 1 : 0;
}
console.log(found);
