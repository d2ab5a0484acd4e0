<?php
// words.php FOLDER ROUNDS: counts, sorts and turns the words of text.txt, ROUNDS times.
// Ends with status 1 when its answers are not those of expected.txt.

const MODULUS = 1000003;

class Entry
{
    public int $count = 0;
    public array $lines = [];

    public function __construct(public string $word)
    {
    }
}

function one_round(string $folder): array
{
    $entries = [];
    $turned = [];
    $words = 0;
    foreach (file("$folder/text.txt", FILE_IGNORE_NEW_LINES) as $at => $line) {
        $parts = preg_split('/\s+/', $line, -1, PREG_SPLIT_NO_EMPTY);
        $words += count($parts);
        foreach ($parts as $word) {
            $entry = $entries[$word] ??= new Entry($word);
            $entry->count++;
            $entry->lines[$at + 1] = true;
        }
        $turned[] = implode(' ', array_map(fn ($word) => ucfirst(strrev($word)), $parts));
    }
    $ranked = array_values($entries);
    usort($ranked, fn ($a, $b) => [$b->count, $a->word] <=> [$a->count, $b->word]);
    $order = $places = $sum = 0;
    foreach ($ranked as $rank => $entry) {
        $order += ($rank + 1) * $entry->count;
        $places += max(array_keys($entry->lines)) * count($entry->lines);
    }
    foreach ($turned as $line) {
        foreach (str_split($line) as $place => $letter) {
            $sum += ($place + 1) * ord($letter);
        }
    }
    return ['lines' => count($turned), 'words' => $words, 'distinct' => count($entries), 'order' => $order % MODULUS,
            'places' => $places % MODULUS, 'turned' => $sum % MODULUS];
}

[, $folder, $rounds] = $argv;
$expected = [];
foreach (file("$folder/expected.txt", FILE_IGNORE_NEW_LINES) as $line) {
    if (preg_match('/^([a-z]+) (\d+)$/', $line, $found)) {
        $expected[$found[1]] = (int) $found[2];
    }
}
for (; $rounds > 0; $rounds--) {
    foreach (one_round($folder) as $name => $value) {
        if ($value !== ($expected[$name] ?? null)) {
            fwrite(STDERR, "words.php: wrong answer: $name is $value\n");
            exit(1);
        }
    }
}
echo "right\n";
