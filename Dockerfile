# Holdfast from this repository: docker build -t holdfast .
# Agents are not in it: begin yours with FROM holdfast, and install them.

FROM node:22-slim AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --no-workspaces
COPY tsconfig.json tsconfig.build.json ./
COPY scripts scripts
COPY src src
RUN npm run build && npm prune --omit=dev --no-workspaces

FROM node:22-slim
ENV NODE_ENV=production
WORKDIR /opt/holdfast
COPY --from=build /build/package.json ./
COPY --from=build /build/node_modules node_modules
COPY --from=build /build/dist dist
RUN ln -s /opt/holdfast/dist/cli/main.js /usr/local/bin/holdfast \
  && install -d -o node -g node /data
# Where agents work. Sessions are in the store.
WORKDIR /data
USER node
EXPOSE 7420
# Without curl: the image has none.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["node", "-e", "fetch('http://127.0.0.1:7420/health').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# Nothing lies between Docker's signals and the server: it stops in order.
ENTRYPOINT ["node", "/opt/holdfast/dist/cli/main.js"]
CMD ["serve", "--help"]
