package main

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

type piece struct {
	channel byte
	data    []byte
}

func readAll(r *replay, at int64, step int) (pieces []piece, end int64) {
	for {
		buffer := make([]byte, step)
		channel, n, next := r.read(at, buffer)
		if n == 0 {
			return pieces, next
		}
		if last := len(pieces) - 1; last >= 0 && pieces[last].channel == channel {
			pieces[last].data = append(pieces[last].data, buffer[:n]...)
		} else {
			pieces = append(pieces, piece{channel, buffer[:n]})
		}
		at = next
	}
}

func TestAReplayHoldsTheLastOutputInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r replay
	var all []byte
	var channels []byte
	for range 400 {
		data := make([]byte, random.IntN(3000))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		channel := byte(1 + random.IntN(2))
		r.add(channel, data)
		all = append(all, data...)
		channels = append(channels, bytes.Repeat([]byte{channel}, len(data))...)
		if len(all) < 200_000 || random.IntN(10) > 0 {
			continue
		}
		pieces, end := readAll(&r, 0, 1+random.IntN(100_000))
		var got, gotChannels []byte
		for _, p := range pieces {
			got = append(got, p.data...)
			gotChannels = append(gotChannels, bytes.Repeat([]byte{p.channel}, len(p.data))...)
		}
		held := min(len(all), replaySize)
		if end != int64(len(all)) || !bytes.Equal(got, all[len(all)-held:]) || !bytes.Equal(gotChannels, channels[len(all)-held:]) {
			t.Fatalf("after %d bytes, %d came back up to %d", len(all), len(got), end)
		}
	}
}

func TestAReplayOfManySmallPiecesStaysSmall(t *testing.T) {
	var r replay
	for i := range 100_000 {
		r.add(byte(1+i%2), []byte{byte(i)})
	}
	if len(r.segments) > replaySegments {
		t.Errorf("there are %d segments", len(r.segments))
	}
	pieces, end := readAll(&r, 0, 10)
	if len(pieces) != replaySegments || end != 100_000 {
		t.Errorf("%d pieces up to %d", len(pieces), end)
	}
}

func TestMoreThanAReplayAtOnceKeepsTheEnd(t *testing.T) {
	data := make([]byte, 3*replaySize+17)
	for i := range data {
		data[i] = byte(i % 251)
	}
	var r replay
	r.add(1, []byte("before"))
	r.add(2, data)
	pieces, _ := readAll(&r, 0, replaySize)
	if len(pieces) != 1 || pieces[0].channel != 2 || !bytes.Equal(pieces[0].data, data[len(data)-replaySize:]) {
		t.Errorf("%d pieces", len(pieces))
	}
}
