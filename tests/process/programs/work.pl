# Hashes, sorting, regular expressions, strings that grow, references in rings.
use strict;
use warnings;

my (%count, %list);
my $text = '';
for my $i (1 .. 60000) {
    my $key = 'k' . ($i * 7919 % 20011);
    $count{$key}++;
    push @{ $list{$key} }, $i if $i % 3 == 0;
    $text .= chr(97 + $i % 26) x ($i % 7);
}
my @keys = sort { $a cmp $b } keys %count;
print scalar(@keys), " $keys[0] $keys[-1] ", scalar(map { @$_ } values %list), "\n";

my %words;
$words{$1}++ while $text =~ /([a-e]{2,5})/g;
print join(' ', map { "$_=$words{$_}" } (sort keys %words)[0 .. 9]), "\n";
(my $copy = $text) =~ s/(.)\1+/<$1>/g;
print length($text), ' ', length($copy), "\n";

my @rings;
for my $i (1 .. 2000) {
    my $node = { id => $i, data => [ 1 .. $i % 50 ], next => undef };
    $node->{next} = $rings[ $i % 10 ];
    $rings[ $i % 10 ] = $node;
}
my ($steps, $sum) = (0, 0);
for my $node (@rings) {
    while ($node) { $steps++; $sum += $_ for @{ $node->{data} }; $node = $node->{next}; }
}
print "$steps $sum\n";
print join(',', map { sprintf '%.4f', sqrt $_ } (sort { $b <=> $a } map { $_ * 37 % 1009 } 1 .. 5000)[0 .. 9]), "\n";
my $pid = fork() // die 'fork';
if ($pid == 0) { my @many = map { 'x' x ($_ % 500) } 1 .. 20000; exit(@many == 20000 ? 7 : 1); }
waitpid $pid, 0;
print $? >> 8, "\n";
