# The server: docker build --file deploy/docker/server.Dockerfile --tag millrace FOLDER
#
# FOLDER holds the program: `make build` leaves it in target/release. It must be built for a C library not newer than the image's.
FROM debian:bookworm-slim

COPY millrace /usr/local/bin/millrace
# A volume that is mounted there for the first time belongs to this user.
RUN install -d -o 65532 -g 65532 /data /cluster
USER 65532:65532
WORKDIR /data
EXPOSE 8080 7000 9000
ENTRYPOINT ["millrace"]
