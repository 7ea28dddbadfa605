// Looks up each name of its standard input with Go's own resolver, and prints the addresses of each as one line.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"sort"
	"strings"
)

func main() {
	resolver := net.Resolver{PreferGo: true}
	names := bufio.NewScanner(os.Stdin)
	for names.Scan() {
		addresses, _ := resolver.LookupIPAddr(context.Background(), names.Text())
		var texts []string
		for _, address := range addresses {
			texts = append(texts, address.String())
		}
		sort.Strings(texts)
		fmt.Println("= " + strings.Join(texts, " "))
	}
}
