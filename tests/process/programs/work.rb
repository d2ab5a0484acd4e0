# Threads, ractors, forks, GC with compaction, strings, big numbers, extensions in C.
# Prints digests, the same on every run.
require 'digest'
require 'json'
require 'openssl'
require 'ripper'
require 'set'
require 'socket'
require 'stringio'
require 'weakref'
require 'zlib'

Warning[:experimental] = false
scale = Integer(ARGV[0] || 1)

def say(name, value)
  puts "#{name} #{Digest::SHA256.hexdigest(value.to_s)[0, 16]}"
end

def random(seed)
  Random.new(seed)
end

scale.times do |round|
  chance = random(round)

  strings = Hash.new { |hash, key| hash[key] = +'' }
  60_000.times { |i| strings[chance.rand(3000)] << ('a'.ord + i % 26).chr * chance.rand(30) }
  strings.delete_if { |key, _| key % 3 == 0 }
  say 'strings', strings.sort.map { |key, text| "#{key}#{text.sum}" }.join

  queue = Queue.new
  workers = 6.times.map do |n|
    Thread.new do
      own = random(n)
      local = Array.new(400) { 'x' * own.rand(2000) }
      2000.times do |i|
        at = own.rand(400)
        local[at] = local[at][0, 1000] + own.bytes(own.rand(300))
        queue << local[at].bytesize if i % 50 == 0
      end
      local.map(&:bytesize).sum
    end
  end
  say 'threads', workers.map(&:value)
  say 'queue', Array.new(queue.size) { queue.pop }.sort

  ractors = 3.times.map do |n|
    Ractor.new(n) do |seed|
      own = Random.new(seed)
      (1..3000).map { |i| "#{own.rand(1000)}-#{i}" }.sort.join.sum
    end
  end
  say 'ractors', ractors.map(&:take)

  before = GC.count
  kept = Array.new(30_000) { |i| { i => "value #{i}", list: [i] * (i % 7) } }
  kept.select!.with_index { |_, i| i % 5 == 0 }
  GC.start
  GC.compact
  GC.verify_compaction_references(toward: :empty) if GC.respond_to?(:verify_compaction_references)
  say 'collected', [GC.count > before, kept.size, kept.sum { |entry| entry[:list].size }]

  children = 5.times.map do |n|
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      more = Thread.new { Array.new(3000) { |i| "child #{n} #{i}" * 3 } }
      kept.concat(Array.new(3000) { |i| i.to_s * 5 })
      GC.start
      writer.write(Digest::SHA256.hexdigest(kept.inspect + more.value.join))
      writer.close
      exit!(0) if n.odd?
    end
    writer.close
    [pid, reader]
  end
  say 'children', children.map { |pid, reader| said = reader.read; Process.wait(pid); [said, $?.success?] }

  packed = Zlib::Deflate.deflate(kept.inspect, 9)
  say 'zlib', [packed, Zlib::Inflate.inflate(packed)]
  text = JSON.generate(kept.first(3000))
  say 'json', JSON.pretty_generate(JSON.parse(text))
  say 'marshal', Marshal.dump(Marshal.load(Marshal.dump(kept.first(2000))))
  say 'numbers', (1..700).inject(:*) ** 3 / (3 ** 2000)
  say 'regexp', text.scan(/"(\w+ (\d)\d*)"/).map(&:last).tally.sort
  say 'encodings', text.encode('UTF-16LE').force_encoding('BINARY').sum
  key = OpenSSL::PKey.read(OpenSSL::PKey::EC.generate('prime256v1').to_der)
  cipher = OpenSSL::Cipher.new('aes-256-gcm').encrypt
  cipher.key = 'k' * 32
  cipher.iv = 'i' * 12
  say 'openssl', [key.private?, cipher.update(text) + cipher.final + cipher.auth_tag]
  source = File.read(__FILE__)
  say 'parsed', Ripper.sexp(source * 3)
  say 'compiled', RubyVM::InstructionSequence.compile(source).disasm.size > 1000
  left, right = UNIXSocket.pair
  sender = Thread.new { 2000.times { |i| left.puts('m' * (i % 400)) }; left.close }
  say 'sockets', right.each_line.map(&:size).sum
  sender.join
  fibers = Array.new(500) { |n| Fiber.new { |x| 5.times { |i| x = Fiber.yield("#{x}#{n}#{i}") }; x } }
  say 'fibers', 4.times.map { |i| fibers.map { |fiber| fiber.resume(i) } }
  deep = ->(n) { n.zero? ? raise('deep') : deep.(n - 1) }
  say 'errors', 200.times.map { |i| begin deep.(i); rescue => error; error.backtrace.size - caller.size; end }
end
