module bifrostcore

go 1.26.4

require (
	github.com/bytedance/sonic v1.15.1
	github.com/maximhq/bifrost/core v1.6.0
	github.com/valyala/fasthttp v1.71.0
)
