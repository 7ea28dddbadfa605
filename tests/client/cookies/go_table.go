// Checks the column of Go in table.txt against Go's own jar. Prints each difference, and the number of rows.
//
// go mod init table && go get golang.org/x/net/publicsuffix && go run go_table.go table.txt
package main

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"

	"golang.org/x/net/publicsuffix"
)

func newJar() http.CookieJar {
	jar, err := cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	if err != nil {
		panic(err)
	}
	return jar
}

func parse(text string) *url.URL {
	parsed, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return parsed
}

func sent(jar http.CookieJar, text string) string {
	request := &http.Request{Header: http.Header{}}
	for _, cookie := range jar.Cookies(parse(text)) {
		request.AddCookie(cookie)
	}
	if header := request.Header.Get("Cookie"); header != "" {
		return header
	}
	return "-"
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	jar, row, rows, wrong := newJar(), "", 0, 0
	for _, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if from, set, found := strings.Cut(line, " <- "); found {
			response := http.Response{Header: http.Header{"Set-Cookie": {set}}}
			jar.SetCookies(parse(from), response.Cookies())
		} else if to, expected, found := strings.Cut(line, " -> "); found {
			columns := strings.Split(expected, " | ")
			if len(columns) > 1 {
				expected = columns[1]
			}
			if header := sent(jar, to); header != expected {
				fmt.Printf("%s: %s -> %s, the table has %s\n", row, to, header, expected)
				wrong++
			}
		} else {
			jar, row, rows = newJar(), line, rows+1
		}
	}
	fmt.Println(rows, "rows,", wrong, "differences;", publicsuffix.List.String())
	if wrong > 0 {
		os.Exit(1)
	}
}
