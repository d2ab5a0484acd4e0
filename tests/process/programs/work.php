<?php
// Uses the extensions that Debian's PHP loads by default. Prints digests, the same on every run. php runs it, and behind
// nginx php-fpm, where the query's `seed` chooses the data.

$seed = (int) ($_GET['seed'] ?? $argv[1] ?? 1);
mt_srand($seed);

function say(string $name, mixed $value): void
{
    echo $name, ' ', substr(hash('sha256', is_string($value) ? $value : serialize($value)), 0, 16), "\n";
}

$text = '';
for ($i = 0; $i < 4000; $i++) {
    $text .= str_repeat(chr(97 + $i % 26), mt_rand(1, 40)) . " word$i é ü\n";
}
say('text', $text);

$tree = [];
for ($i = 0; $i < 20000; $i++) {
    $tree[mt_rand(0, 500)][] = "value $i";
    if ($i % 7 == 0) {
        unset($tree[mt_rand(0, 500)]);
    }
}
ksort($tree);
say('arrays', $tree);

class Node
{
    public array $links = [];
    public function __construct(public int $n) {}
}
for ($round = 0; $round < 20; $round++) {
    $nodes = array_map(fn ($n) => new Node($n), range(0, 500));
    foreach ($nodes as $i => $node) {
        $node->links[] = $nodes[($i * 31 + 7) % 501];
        $node->links[] = $node;
    }
    unset($nodes, $node);
}
say('cycles', gc_collect_cycles() > 0);

say('json', json_decode(json_encode(array_slice($tree, 0, 300), JSON_PRETTY_PRINT), true));
preg_match_all('/(?<letters>[a-z]+) word(\d+)/u', $text, $matches);
say('pcre', [count($matches['letters']), preg_replace_callback('/\d+/', fn ($m) => $m[0] * 2, $text)]);
say('zlib', [gzuncompress(gzcompress($text, 9)), gzdecode(gzencode($text))]);
say('iconv', iconv('UTF-8', 'UTF-16LE', $text));
say('ctype', [ctype_alpha('abc'), ctype_digit('12a')]);
$day = new DateTimeImmutable('2024-01-31', new DateTimeZone('Europe/Paris'));
say('dates', array_map(fn ($i) => $day->modify("+$i months")->format(DATE_ATOM), range(1, 200)));
say('calendar', array_map(fn ($i) => [jdtogregorian(2460000 + $i), easter_days(1900 + $i)], range(1, 150)));
say('hash', array_map(fn ($name) => hash($name, $text), ['md5', 'sha512', 'crc32b', 'xxh3', 'whirlpool']));
$key = openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1']);
openssl_sign($text, $signature, $key, OPENSSL_ALGO_SHA256);
say('openssl', [openssl_verify($text, $signature, openssl_pkey_get_details($key)['key'], OPENSSL_ALGO_SHA256),
    openssl_encrypt($text, 'aes-256-gcm', str_repeat('k', 32), 0, str_repeat('i', 12), $tag)]);
say('sodium', [sodium_crypto_generichash($text),
    sodium_crypto_secretbox($text, str_repeat('n', 24), str_repeat('k', 32)),
    sodium_crypto_pwhash(16, 'word', str_repeat('s', 16), 1, 8 << 20)]);
say('fileinfo', [(new finfo(FILEINFO_MIME))->buffer("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), (new finfo())->buffer($text)]);
say('gettext', _('hello'));
say('posix', posix_getpid() === getmypid());
$library = FFI::cdef(
    'void *malloc(size_t); void *realloc(void *, size_t); void free(void *); size_t strlen(const char *);'
);
for ($i = 1; $i < 300; $i++) {
    $block = $library->malloc($i * 10);
    FFI::memset($block, 65, $i * 10);
    $library->free($library->realloc($block, $i * 35));
}
say('ffi', $library->strlen('twelve chars'));
$archive = sys_get_temp_dir() . '/work-' . getmypid() . '.tar';
$phar = new PharData($archive);
for ($i = 0; $i < 30; $i++) {
    $phar->addFromString("file$i.txt", substr($text, $i * 100, 5000));
}
say('phar', array_map(fn ($i) => $phar["file$i.txt"]->getContent(), range(0, 29)));
unset($phar);
PharData::unlinkArchive($archive);
say('tokens', count(token_get_all(file_get_contents(__FILE__))));
$buffer = shmop_open(0x4a << 16 | getmypid() & 0xffff, 'c', 0600, 5000);
shmop_write($buffer, substr($text, 0, 5000), 0);
say('shmop', shmop_read($buffer, 0, 5000));
shmop_delete($buffer);
socket_create_pair(AF_UNIX, SOCK_STREAM, 0, $pair);
socket_write($pair[0], substr($text, 0, 3000));
say('sockets', socket_read($pair[1], 3000));
say('reflection', array_map(fn ($name) => (new ReflectionExtension($name))->getName(), get_loaded_extensions()) > 10);
say('errors', array_map(function ($i) {
    try {
        intdiv($i, $i % 3);
        return $i;
    } catch (DivisionByZeroError $error) {
        return $error->getMessage();
    }
}, range(1, 200)));
if (PHP_SAPI === 'cli') {
    $children = [];
    for ($n = 0; $n < 4; $n++) {
        socket_create_pair(AF_UNIX, SOCK_STREAM, 0, $pipe);
        $child = pcntl_fork();
        if ($child === 0) {
            $tree[] = array_fill(0, 5000, "child $n");
            socket_write($pipe[1], md5(serialize($tree)));
            exit(0);
        }
        $said = socket_read($pipe[0], 32);
        pcntl_waitpid($child, $status);
        $children[] = [$said, $status];
    }
    say('children', $children);
}
echo "done\n";
