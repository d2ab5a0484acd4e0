# words.pl FOLDER ROUNDS: counts, sorts and turns the words of text.txt, ROUNDS times.
# Ends with status 1 when its answers are not those of expected.txt.

use strict;
use warnings;

my ($folder, $rounds) = @ARGV;
my $modulus = 1000003;

sub open_file {
    my ($name) = @_;
    open(my $file, '<', "$folder/$name") or fail("$folder/$name: $!");
    return $file;
}

sub fail {
    print STDERR "words.pl: @_\n";
    exit 1;
}

sub one_round {
    my %found = (lines => 0, words => 0, turned => 0);
    my (%count, %lines, @turned);
    my $file = open_file('text.txt');
    while (my $line = <$file>) {
        chomp $line;
        $found{lines}++;
        while ($line =~ /(\S+)/g) {
            $count{$1}++;
            $lines{$1}{$.} = 1;
            $found{words}++;
        }
        (my $turned = $line) =~ s/(\S+)/ucfirst reverse $1/ge;
        push @turned, $turned;
    }
    close $file;
    $found{distinct} = keys %count;
    my @ranked = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    my $rank = 0;
    $found{order} += ++$rank * $count{$_} for @ranked;
    for my $word (keys %lines) {
        my @places = sort { $a <=> $b } keys %{ $lines{$word} };
        $found{places} += $places[-1] * @places;
    }
    for my $line (@turned) {
        my $place = 0;
        $found{turned} += ++$place * ord for split //, $line;
    }
    $found{$_} %= $modulus for qw(order places turned);
    return \%found;
}

my $file = open_file('expected.txt');
my %expected = map { /^([a-z]+) (\d+)$/ ? ($1, $2) : () } <$file>;
close $file;
for (1 .. $rounds) {
    my $found = one_round();
    for my $name (sort keys %$found) {
        my $wanted = $expected{$name} // 'nothing';
        fail("wrong answer: $name is $found->{$name}, expected $wanted") if $found->{$name} ne $wanted;
    }
}
print "right\n";
