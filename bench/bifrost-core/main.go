// A thin HTTP shell around Bifrost's core library (github.com/maximhq/bifrost/core): its queue, its provider's code, and an answer that
// is parsed and printed anew. It is not bifrost-http, which adds virtual keys, governance, logs and telemetry: a lower bound of its cost.
//
//	bifrost-core PORT UPSTREAM_PORT KEY
package main

import (
	"bufio"
	"context"
	"os"
	"time"

	"github.com/bytedance/sonic"
	bifrost "github.com/maximhq/bifrost/core"
	"github.com/maximhq/bifrost/core/providers/openai"
	"github.com/maximhq/bifrost/core/schemas"
	"github.com/valyala/fasthttp"
)

const timeout = 120 * time.Second

// account says what the library asks for: one provider, one key.
type account struct{ upstreamPort string }

func (account) GetConfiguredProviders() ([]schemas.ModelProvider, error) {
	return []schemas.ModelProvider{schemas.OpenAI}, nil
}

func (account) GetKeysForProvider(context.Context, schemas.ModelProvider) ([]schemas.Key, error) {
	return []schemas.Key{{ID: "k", Name: "k", Value: *schemas.NewSecretVar("none"), Models: []string{"*"}, Weight: 1}}, nil
}

func (a account) GetConfigForProvider(schemas.ModelProvider) (*schemas.ProviderConfig, error) {
	return &schemas.ProviderConfig{
		NetworkConfig: schemas.NetworkConfig{
			BaseURL: "http://127.0.0.1:" + a.upstreamPort, DefaultRequestTimeoutInSeconds: int(timeout.Seconds()), AllowPrivateNetwork: true,
		},
		ConcurrencyAndBufferSize: schemas.ConcurrencyAndBufferSize{Concurrency: 1000, BufferSize: 5000}, // as its documentation says
	}, nil
}

func main() {
	port, upstreamPort, key := os.Args[1], os.Args[2], os.Args[3]
	library, err := bifrost.Init(context.Background(), schemas.BifrostConfig{
		Account: account{upstreamPort}, InitialPoolSize: 5000, Logger: bifrost.NewDefaultLogger(schemas.LogLevelError),
	})
	if err != nil {
		panic(err)
	}
	server := &fasthttp.Server{ReadBufferSize: 16384, Handler: func(request *fasthttp.RequestCtx) {
		if string(request.Request.Header.Peek("authorization")) != "Bearer "+key {
			answer(request, 401, "key")
			return
		}
		serve(library, request)
	}}
	if err := server.ListenAndServe("127.0.0.1:" + port); err != nil {
		panic(err)
	}
}

func serve(library *bifrost.Bifrost, request *fasthttp.RequestCtx) {
	var body openai.OpenAIChatRequest
	if err := sonic.Unmarshal(request.PostBody(), &body); err != nil {
		answer(request, 400, err.Error())
		return
	}
	call, cancel := schemas.NewBifrostContextWithTimeout(context.Background(), timeout)
	asked := body.ToBifrostChatRequest(call)
	asked.Provider, asked.Model = schemas.OpenAI, "bench"
	if !body.IsStreamingRequested() {
		defer cancel()
		whole, failure := library.ChatCompletionRequest(call, asked)
		if failure != nil {
			answer(request, 502, failure)
			return
		}
		answer(request, 200, whole)
		return
	}
	events, failure := library.ChatCompletionStreamRequest(call, asked)
	if failure != nil {
		cancel()
		answer(request, 502, failure)
		return
	}
	request.SetContentType("text/event-stream")
	request.SetBodyStreamWriter(func(out *bufio.Writer) {
		defer cancel()
		for event := range events {
			text, _ := sonic.Marshal(event)
			out.WriteString("data: ")
			out.Write(text)
			out.WriteString("\n\n")
			if out.Flush() != nil {
				cancel()
				for range events {
				}
				return
			}
		}
		out.WriteString("data: [DONE]\n\n")
		out.Flush()
	})
}

func answer(request *fasthttp.RequestCtx, status int, body any) {
	text, _ := sonic.Marshal(body)
	request.SetStatusCode(status)
	request.SetContentType("application/json")
	request.SetBody(text)
}
