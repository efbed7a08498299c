package main

const (
	replaySize     = 256 << 10
	replaySegments = 4096
)

// replay holds the last output of a command, for those who attach to it later.
type replay struct {
	ring     []byte // the byte at offset n is at n % replaySize; grows to that size
	segments []segment
	begin    int64 // offset of the oldest byte held
	end      int64 // offset behind the newest
}

// segment is a run of output on one channel; it begins where the one before ends.
type segment struct {
	channel byte
	end     int64
}

// add appends output; the oldest makes room for it.
func (r *replay) add(channel byte, data []byte) {
	if len(data) == 0 {
		return
	}
	for len(data) > 0 {
		at := int(r.end % replaySize)
		var n int
		if at == len(r.ring) {
			n = min(len(data), replaySize-at)
			r.ring = append(r.ring, data[:n]...)
		} else {
			n = copy(r.ring[at:], data)
		}
		r.end += int64(n)
		data = data[n:]
	}
	if last := len(r.segments) - 1; last >= 0 && r.segments[last].channel == channel {
		r.segments[last].end = r.end
	} else {
		r.segments = append(r.segments, segment{channel, r.end})
	}
	r.begin = max(r.begin, r.end-replaySize)
	for len(r.segments) > replaySegments || r.segments[0].end <= r.begin {
		r.begin = max(r.begin, r.segments[0].end)
		r.segments = r.segments[1:]
	}
}

// read copies output from offset at on, all of one channel, and returns the offset behind it. Nothing is copied when
// at is the end. Output that is no longer held is skipped.
func (r *replay) read(at int64, into []byte) (channel byte, n int, next int64) {
	at = max(at, r.begin)
	for _, s := range r.segments {
		if s.end <= at {
			continue
		}
		into = into[:min(int64(len(into)), s.end-at)]
		from := int(at % replaySize)
		n = copy(into, r.ring[from:])
		n += copy(into[n:], r.ring)
		return s.channel, n, at + int64(n)
	}
	return 0, 0, at
}
