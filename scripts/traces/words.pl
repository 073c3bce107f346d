# Counts the words of a text and prints them with their numbers, frequent ones first; make-traces.sh records it.
use strict;
use warnings;

my %count;
while (my $line = <>) {
    chomp $line;
    $count{$_}++ for split / /, $line;
}
print "$_ $count{$_}\n" for sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
