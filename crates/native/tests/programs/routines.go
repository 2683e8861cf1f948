// Goroutines that are preempted by signals, stacks that grow, the collector, and recovered faults.
package main

import (
	"fmt"
	"runtime"
	"sync"
)

func grow(depth int) int {
	var room [128]int
	room[depth%128] = depth
	if depth == 0 {
		return 0
	}
	return grow(depth-1) + room[depth%128] - depth + 1
}

func recovered() (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	var pointer *int
	return fmt.Sprint(*pointer)
}

func main() {
	var group sync.WaitGroup
	results := make([]int, 50)
	for n := range results {
		group.Add(1)
		go func() {
			defer group.Done()
			sum := 0
			for i := 0; i < 2000000; i++ {
				sum += i % (n + 2)
			}
			text := make([]string, 0)
			for i := 0; i < 200; i++ {
				text = append(text, fmt.Sprint(i))
			}
			results[n] = sum + len(text) + grow(2000)
		}()
	}
	group.Wait()
	runtime.GC()
	total := 0
	for _, result := range results {
		total += result
	}
	fmt.Println(total, recovered())
}
