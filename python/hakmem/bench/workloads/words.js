// words.js FOLDER ROUNDS: counts, sorts and turns the words of text.txt, ROUNDS times, and packs the turned lines.
// Ends with status 1 when its answers are not those of expected.txt.

'use strict';
const fs = require('fs');
const zlib = require('zlib');

const [folder, rounds] = process.argv.slice(2);
const MODULUS = 1000003;

function oneRound() {
    const entries = new Map();
    const turned = [];
    let words = 0;
    const lines = fs.readFileSync(`${folder}/text.txt`, 'latin1').trimEnd().split('\n');
    lines.forEach((line, at) => {
        const parts = line.split(/\s+/).filter(Boolean);
        words += parts.length;
        for (const word of parts) {
            let entry = entries.get(word);
            if (!entry) {
                entry = { word, count: 0, lines: new Set() };
                entries.set(word, entry);
            }
            entry.count++;
            entry.lines.add(at + 1);
        }
        // A buffer of its own for each line, and its packed form, as a server writes them.
        const text = parts.map((word) => [...word].reverse().join(''))
            .map((word) => word[0].toUpperCase() + word.slice(1));
        const packed = zlib.deflateRawSync(Buffer.from(text.join(' ')), { level: 1 });
        turned.push(zlib.inflateRawSync(packed));
    });
    const ranked = [...entries.values()].sort((a, b) => b.count - a.count || (a.word < b.word ? -1 : 1));
    let order = 0, places = 0, sum = 0;
    ranked.forEach((entry, rank) => {
        order += (rank + 1) * entry.count;
        places += Math.max(...entry.lines) * entry.lines.size;
    });
    for (const line of turned)
        line.forEach((letter, place) => { sum += (place + 1) * letter; });
    return { lines: lines.length, words, distinct: entries.size, order: order % MODULUS, places: places % MODULUS,
             turned: sum % MODULUS };
}

const expected = Object.fromEntries(fs.readFileSync(`${folder}/expected.txt`, 'latin1').trimEnd().split('\n')
    .map((line) => line.split(' ')).map(([name, value]) => [name, Number(value)]));
for (let round = 0; round < Number(rounds); round++) {
    for (const [name, value] of Object.entries(oneRound())) {
        if (value !== expected[name]) {
            console.error(`words.js: wrong answer: ${name} is ${value}, expected ${expected[name]}`);
            process.exit(1);
        }
    }
}
console.log('right');
