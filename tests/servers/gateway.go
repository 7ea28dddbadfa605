// A gateway with Go's ReverseProxy: gateway <its address> <address of the upstream> <http1 or http2>.
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
	upstream := new(http.Protocols)
	upstream.SetHTTP1(os.Args[3] == "http1")
	upstream.SetUnencryptedHTTP2(os.Args[3] == "http2")
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:     &http.Transport{DisableCompression: true, Protocols: upstream},
		FlushInterval: -1,
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Addr: os.Args[1], Handler: proxy, Protocols: protocols}
	log.Fatal(server.ListenAndServe())
}
