// A network that can be broken on demand: `GET /break` cuts the runner page's WebSocket, once.
export function breakable() {
  let page = null
  let isBroken = false
  return {
    name: 'breakable',
    configureServer(server) {
      server.httpServer.on('upgrade', ({ url }, socket) => {
        if (url.includes('type=orchestrator')) page = socket
      })
      server.middlewares.use('/break', (request, response) => {
        if (!isBroken) page.destroy()
        isBroken = true
        response.end()
      })
    },
  }
}
