# words.rb FOLDER ROUNDS: counts, sorts and turns the words of text.txt, ROUNDS times.
# Ends with status 1 when its answers are not those of expected.txt.

folder, rounds = ARGV[0], ARGV[1].to_i
MODULUS = 1_000_003
Entry = Struct.new(:word, :count, :lines)

def one_round(folder)
  entries = {}
  turned = []
  words = 0
  File.foreach("#{folder}/text.txt", chomp: true).with_index(1) do |line, number|
    found = line.split
    words += found.size
    found.each do |word|
      entry = (entries[word] ||= Entry.new(word, 0, []))
      entry.count += 1
      entry.lines << number if entry.lines.last != number
    end
    turned << found.map { |word| word.reverse.capitalize }.join(' ')
  end
  ranked = entries.values.sort_by { |entry| [-entry.count, entry.word] }
  {
    'lines' => turned.size, 'words' => words, 'distinct' => entries.size,
    'order' => ranked.each_with_index.sum { |entry, rank| (rank + 1) * entry.count } % MODULUS,
    'places' => ranked.sum { |entry| entry.lines.last * entry.lines.size } % MODULUS,
    'turned' => turned.sum { |line| line.each_char.with_index(1).sum { |letter, place| place * letter.ord } } % MODULUS
  }
end

expected = File.readlines("#{folder}/expected.txt").to_h { |line| line.split }.transform_values(&:to_i)
rounds.times do
  one_round(folder).each do |name, value|
    abort("words.rb: wrong answer: #{name} is #{value}, expected #{expected[name]}") if value != expected[name]
  end
end
puts 'right'
