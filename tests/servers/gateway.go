// A gateway with Go's ReverseProxy: gateway <its address> <address of the upstream>.
package main

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	target := &url.URL{Scheme: "http", Host: os.Args[2]}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:     &http.Transport{DisableCompression: true},
		FlushInterval: -1,
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Addr: os.Args[1], Handler: proxy, Protocols: protocols}
	log.Fatal(server.ListenAndServe())
}
